"""Federated image classification with bad clients, for Flower."""

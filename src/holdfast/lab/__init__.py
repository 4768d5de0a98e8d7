"""The lab, where data sets and experiments live."""

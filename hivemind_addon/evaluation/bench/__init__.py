"""Measures the proxy against bare mitmdump and against no proxy, in one run."""

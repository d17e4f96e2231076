"""Radios that are GNU Radio flowgraphs, in processes of their own."""

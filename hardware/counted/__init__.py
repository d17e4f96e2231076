"""Radios without timestamps: continuous streams whose samples are counted, and the alignment of their counts."""

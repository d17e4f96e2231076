"""ADALM-Plutos through pyadi-iio and libiio."""

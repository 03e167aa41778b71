"""Packs programs: steps become records, weights the order in which kernels read them."""

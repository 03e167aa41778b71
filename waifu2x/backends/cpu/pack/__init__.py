"""Packs programs: steps become records, and weights get the order in which kernels read them."""

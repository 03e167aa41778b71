"""ONNX files, read without running anything and without the package of that name.

`wire.py` walks over the bytes, `messages.py` and `tensors.py` make nodes and arrays of them,
`folding.py` computes what does not depend on pixels, and the operators that `reader.py` lists add
the rest to a graph, in order.
"""

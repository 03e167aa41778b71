"""ONNX files, read without running anything and without the package of that name.

`wire.py` walks over the bytes, `messages.py` and `tensors.py` make nodes and arrays of them,
`folding.py` computes what is known before there is a picture, the modules that `reader.py` lists
add the rest to a graph, in order.
"""

"""ncnn's networks: a .param file, the graph as text, and a .bin file, its weights."""

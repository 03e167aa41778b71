"""Networks as graphs: the model, the readers of model files, the catalogue and its sets."""

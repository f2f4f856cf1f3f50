"""ONNX Runtime: graphs, sessions, and the layers made of them."""

"""The CNN: read from ONNX, its shapes and work, and which box of its inputs each operator needs."""

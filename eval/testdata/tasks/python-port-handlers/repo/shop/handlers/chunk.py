def handle(request):
    size = request.get("size", 2)
    if size < 1:
        return 422, {"error": "a chunk has at least one item"}
    items = request["items"]
    return 200, {"chunks": [items[i:i + size] for i in range(0, len(items), size)]}

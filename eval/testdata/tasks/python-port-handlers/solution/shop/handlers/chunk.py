from shop.http import Response


def handle(request):
    size = request.optional("size", 2)
    if size < 1:
        return Response(422, {"error": "a chunk has at least one item"})
    items = request.require("items")
    return Response(200, {"chunks": [items[i:i + size] for i in range(0, len(items), size)]})

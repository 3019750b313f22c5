from shop.http import Response


def handle(request):
    name = request.optional("name", "you").strip()
    return Response(200, {"greeting": "Hello, " + (name or "you")})

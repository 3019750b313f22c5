from shop.http import Response


def handle(request):
    return Response(200, {"echo": request.require("text")})

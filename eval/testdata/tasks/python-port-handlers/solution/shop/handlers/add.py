from shop.http import Response


def handle(request):
    return Response(200, {"sum": request.require("a") + request.require("b")})

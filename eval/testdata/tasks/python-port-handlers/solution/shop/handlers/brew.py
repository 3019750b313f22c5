from shop.http import Response


def handle(request):
    if request.optional("device", "teapot") == "teapot":
        return Response(418, {"error": "I'm a teapot"})
    return Response(201, {"brewed": request.require("drink")})

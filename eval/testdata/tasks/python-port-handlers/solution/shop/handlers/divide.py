from shop.http import Response


def handle(request):
    if request.require("b") == 0:
        return Response(422, {"error": "division by zero"})
    return Response(200, {"quotient": request.require("a") / request.require("b")})

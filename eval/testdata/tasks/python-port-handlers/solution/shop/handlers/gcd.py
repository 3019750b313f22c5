from shop.http import Response


def handle(request):
    a, b = request.require("a"), request.require("b")
    while b:
        a, b = b, a % b
    return Response(200, {"gcd": abs(a)})

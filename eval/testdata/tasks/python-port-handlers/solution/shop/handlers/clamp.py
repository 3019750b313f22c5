from shop.http import Response


def handle(request):
    low, high = request.optional("low", 0), request.optional("high", 100)
    if low > high:
        return Response(422, {"error": "low is above high"})
    return Response(200, {"value": min(max(request.require("value"), low), high)})

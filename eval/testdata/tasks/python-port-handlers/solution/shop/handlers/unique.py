from shop.http import Response


def handle(request):
    return Response(200, {"items": list(dict.fromkeys(request.require("items")))})

from shop.http import Response


def handle(request):
    return Response(200, {"text": request.require("text")[::-1]})

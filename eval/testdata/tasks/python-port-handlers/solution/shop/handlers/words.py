from shop.http import Response


def handle(request):
    return Response(200, {"words": len(request.require("text").split(request.optional("separator", None)))})

from shop.http import Response


def handle(request):
    return Response(200, {"initials": "".join(word[0].upper() for word in request.require("name").split())})

from shop.http import Response


def handle(request):
    letters = "".join(c if c.isalnum() else " " for c in request.require("title").lower())
    return Response(200, {"slug": request.optional("join", "-").join(letters.split())})

from shop.http import Response


def handle(request):
    n = request.require("n")
    said = ("fizz" if n % 3 == 0 else "") + ("buzz" if n % 5 == 0 else "")
    return Response(200, {"said": said or str(n)})

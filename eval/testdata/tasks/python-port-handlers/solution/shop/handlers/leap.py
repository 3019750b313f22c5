from shop.http import Response


def handle(request):
    year = request.require("year")
    return Response(200, {"leap": year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)})

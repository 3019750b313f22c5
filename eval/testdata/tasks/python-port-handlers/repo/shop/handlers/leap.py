def handle(request):
    year = request["year"]
    return 200, {"leap": year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)}

def handle(request):
    return 200, {"sum": request["a"] + request["b"]}

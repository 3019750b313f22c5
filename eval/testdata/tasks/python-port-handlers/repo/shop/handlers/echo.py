def handle(request):
    return 200, {"echo": request["text"]}

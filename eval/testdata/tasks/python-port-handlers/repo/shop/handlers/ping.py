def handle(request):
    return 200, {"pong": True}

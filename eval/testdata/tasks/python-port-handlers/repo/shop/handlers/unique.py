def handle(request):
    return 200, {"items": list(dict.fromkeys(request["items"]))}

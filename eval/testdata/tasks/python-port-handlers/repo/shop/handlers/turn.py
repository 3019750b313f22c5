def handle(request):
    return 200, {"text": request["text"][::-1]}

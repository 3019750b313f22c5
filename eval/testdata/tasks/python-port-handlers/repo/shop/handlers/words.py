def handle(request):
    return 200, {"words": len(request["text"].split(request.get("separator", None)))}

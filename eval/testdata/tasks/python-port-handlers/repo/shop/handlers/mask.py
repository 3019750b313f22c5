def handle(request):
    kept = request.get("kept", 4)
    text = request["text"]
    return 200, {"text": "*" * max(len(text) - kept, 0) + text[max(len(text) - kept, 0):]}

from shop.http import Response


def handle(request):
    kept = request.optional("kept", 4)
    text = request.require("text")
    return Response(200, {"text": "*" * max(len(text) - kept, 0) + text[max(len(text) - kept, 0):]})

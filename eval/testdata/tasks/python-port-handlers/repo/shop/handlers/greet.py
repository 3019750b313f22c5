def handle(request):
    name = request.get("name", "you").strip()
    return 200, {"greeting": "Hello, " + (name or "you")}

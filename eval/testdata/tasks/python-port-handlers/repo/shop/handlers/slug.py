def handle(request):
    letters = "".join(c if c.isalnum() else " " for c in request["title"].lower())
    return 200, {"slug": request.get("join", "-").join(letters.split())}

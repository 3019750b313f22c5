def handle(request):
    if request.get("device", "teapot") == "teapot":
        return 418, {"error": "I'm a teapot"}
    return 201, {"brewed": request["drink"]}

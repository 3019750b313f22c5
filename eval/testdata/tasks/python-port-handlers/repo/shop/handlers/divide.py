def handle(request):
    if request["b"] == 0:
        return 422, {"error": "division by zero"}
    return 200, {"quotient": request["a"] / request["b"]}

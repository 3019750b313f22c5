def handle(request):
    low, high = request.get("low", 0), request.get("high", 100)
    if low > high:
        return 422, {"error": "low is above high"}
    return 200, {"value": min(max(request["value"], low), high)}

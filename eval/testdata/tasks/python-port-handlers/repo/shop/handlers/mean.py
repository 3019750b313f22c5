def handle(request):
    numbers = request["numbers"]
    if not numbers:
        return 422, {"error": "no numbers"}
    return 200, {"mean": sum(numbers) / len(numbers)}

from shop.http import Response


def handle(request):
    numbers = request.require("numbers")
    if not numbers:
        return Response(422, {"error": "no numbers"})
    return Response(200, {"mean": sum(numbers) / len(numbers)})

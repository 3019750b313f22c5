def handle(request):
    a, b = request["a"], request["b"]
    while b:
        a, b = b, a % b
    return 200, {"gcd": abs(a)}

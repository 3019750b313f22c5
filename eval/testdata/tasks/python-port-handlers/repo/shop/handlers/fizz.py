def handle(request):
    n = request["n"]
    said = ("fizz" if n % 3 == 0 else "") + ("buzz" if n % 5 == 0 else "")
    return 200, {"said": said or str(n)}

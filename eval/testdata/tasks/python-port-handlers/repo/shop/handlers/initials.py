def handle(request):
    return 200, {"initials": "".join(word[0].upper() for word in request["name"].split())}

exports.pad = (s, n) => String(s).padStart(n, '0')

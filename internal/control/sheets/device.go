package sheets

import "strings"

// The first that a browser's own words contain counts: many name others that they resemble.
var (
	browsers = [][2]string{{"Edg", "Edge"}, {"OPR/", "Opera"}, {"SamsungBrowser/", "Samsung Internet"}, {"FxiOS/", "Firefox"}, {"Firefox/", "Firefox"}, {"CriOS/", "Chrome"}, {"Chrome/", "Chrome"}, {"Safari/", "Safari"}}
	systems  = [][2]string{{"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Android", "Android"}, {"CrOS", "ChromeOS"}, {"Windows", "Windows"}, {"Mac OS X", "Mac"}, {"Linux", "Linux"}}
)

// Device says in a few words of ours what a browser says of itself in its User-Agent, such as "Firefox on Linux". Nothing
// of what it sent is repeated.
func Device(agent string) string {
	browser, system := first(browsers, agent), first(systems, agent)
	if browser == "" {
		browser = "A browser"
	}
	if system == "" {
		return browser
	}
	return browser + " on " + system
}

func first(known [][2]string, agent string) string {
	for _, k := range known {
		if strings.Contains(agent, k[0]) {
			return k[1]
		}
	}
	return ""
}

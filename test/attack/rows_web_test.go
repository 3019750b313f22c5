package attack_test

import "choir.dev/choiros/internal/defence"

// webRows are attacks by pages of the web, and by those who would have data carried out in an address.
var webRows = []Row{
	beside(1, "a page has its reader put what it knows into an address and read that", "dispatch", "TestOnlyNamedAddressesAreRead", `a page is read that nobody named: .*`, defence.FetchAddresses),
	beside(1, "a page that the user named sends its reader to another host", "dispatch", "TestARedirectIsAnotherAddress", `a redirect leads to another host`, defence.FetchRedirect),
	beside(1, "the desktop's page submits an address with data in it in the user's name", "dispatch", "TestWhoseWordsTheUsersAre", `the desktop's page names an address for the user`, defence.FetchPerson),
	beside(1, "a model offers an address with data in it as an answer to its question", "dispatch", "TestWhoseWordsTheUsersAre", `an answer that a model offered names an address`, defence.FetchChoices),
	beside(1, "a page says what only the user says", "dispatch", "TestAPageSaysNothingForTheHost", `a page speaks for the host: .*`, defence.FetchQuoted),
	beside(1, "a page has its reader quote what no page says", "dispatch", "TestOnlyWhatASourceSaysIsCited", `cited with words that the source does not have: .*`, defence.CiteExcerpt),
	beside(1, "a page has who writes of it change other files", "dispatch", "TestAWriterWritesItsDocumentAlone", `a writer changed another file: .*`, defence.WriteDocument),
	beside(1, "a page has a document cite what was never read", "dispatch", "TestADocumentCitesWhatWasRecorded", `a document cites what was never recorded: .*`, defence.WriteCitations),
	beside(53, "a page has its reader send what it knows to an address that the user named", "dispatch", "TestSilenceSendsNothing", `a request is sent that nobody allowed: .*`, defence.RequestAsked),
	beside(54, "an answer for one request is used for another one, or a second time", "dispatch", "TestAnAnswerIsForOneRequest", `an approval was used \d+ times`, defence.RequestBound),
	beside(1, "a service sends what it is sent to another host", "webpage/reader", "TestARequestLeavesAsItIs", `a redirect of a request is followed: .*`, defence.RequestRedirect),
	beside(54, "a service has what was allowed one time sent again", "webpage/reader", "TestNothingIsSentTwice", `a request is sent \d+ times over HTTP/2: .*`, defence.RequestOnce),
	beside(52, "a page has a request sign in, or say that somebody else sends it", "webpage", "TestWhatNoRequestMayBe", `a task sets the header .*`, defence.RequestHeaders),
	beside(1, "a page has a header hold another header, or another request", "webpage", "TestWhatNoRequestMayBe", `a header of two lines is taken: .*`, defence.RequestLines),
	beside(27, "a page of a few bytes unpacks to more than a reader holds, or never ends", "webpage/reader", "TestAGiantPageIsBounded", `\d+ MiB of a page are read`, defence.FetchSize),
	beside(32, "a search service's error repeats the key", "websearch", "TestServicesThatFail", `an error has the key: .*`, defence.SearchKey),
}

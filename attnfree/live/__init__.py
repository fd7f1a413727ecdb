"The live pages: networks in pieces, and a page that explains a run."
